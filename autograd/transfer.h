// Moving bytes between devices.
#pragma once

#include <cstdint>

#include "autograd/device.h"

namespace ink {

/// Copies bytes from one device's memory to another's, by way of the host's where neither is its.
void transfer(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);

}  // namespace ink
