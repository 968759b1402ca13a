#include "autograd/kernels/kernel.h"

#include <algorithm>

#include "autograd/memory/device_backend.h"

namespace ink::detail {

void KernelCheck::operator()(const Array& x) {
  if (!x.defined()) return;
  INK_CHECK(!found || x.device() == device, name, ": tensors live on ", device, " and ",
            x.device());
  INK_CHECK(strided || x.is_contiguous(), name, ": its kernel needs contiguous tensors, got ",
            x.shape(), " with strides ", x.strides());
  device = x.device();
  found = true;
}
void KernelCheck::operator()(const Arrays& list) {
  for (const Array& x : list) (*this)(x);
}

void KernelCheck::enter(bool exists) const {
  backend_of(device).enter(device);
  INK_CHECK(exists, name, ": there is no CUDA kernel for it");
}

void DescribeArrays::operator()(const Array& x) {
  if (x.defined()) out << ' ' << x.shape() << ' ' << x.dtype();
}
void DescribeArrays::operator()(const Arrays& list) {
  out << ' ' << list.size() << (list.size() == 1 ? " tensor" : " tensors");
  const auto first = std::find_if(list.begin(), list.end(), [](auto& x) { return x.defined(); });
  if (first == list.end()) return;
  out << ", the first";
  (*this)(*first);
}

}  // namespace ink::detail
