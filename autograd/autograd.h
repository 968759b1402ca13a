// All of autograd: tensors, the ops on them, gradients, and the tools to check and save them.
#pragma once

#include "autograd/autocast.h"
#include "autograd/engine/checkpoint.h"
#include "autograd/engine/grad_store.h"
#include "autograd/engine/graph.h"
#include "autograd/engine/observer.h"
#include "autograd/inspect/draw.h"
#include "autograd/inspect/gradcheck.h"
#include "autograd/inspect/nan_sentinel.h"
#include "autograd/inspect/profiler.h"
#include "autograd/io/serialize.h"
#include "autograd/memory/device_backend.h"
#include "autograd/ops.h"
#include "autograd/print.h"
#include "autograd/random/generator.h"
#include "autograd/replay.h"
#include "autograd/tensor.h"
