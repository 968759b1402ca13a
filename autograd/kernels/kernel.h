// The seam between CPU and CUDA: how a kernel is declared, and how a call finds its device.
//
// A declaration makes cpu::name, cuda::name and kernel::name. kernel::name looks at the device of
// its arrays and calls one of the others. A kernel computes into given outputs, which have the
// right shape and dtype, and knows nothing of graphs. Outputs come first. An undefined array means
// "not given". A missing definition is a link error: of cpu::name in this library, of cuda::name in
// inkling::cuda. A program that links inkling::cuda gets its kernels' addresses in twin::name.
#pragma once

#include <tuple>
#include <type_traits>

#include "autograd/base/text.h"
#include "autograd/memory/array.h"

namespace ink {
namespace detail {

/// Calls f for each array, or list of arrays, in a kernel's argument. The argument is one itself,
/// or a struct whose arrays() ties them together.
template <class F, class Argument>
void for_arrays(F&& f, const Argument& x) {
  if constexpr (std::is_same_v<Argument, Array> || std::is_same_v<Argument, Arrays>) {
    f(x);
  } else if constexpr (requires { x.arrays(); }) {
    std::apply([&](const auto&... member) { (f(member), ...); }, x.arrays());
  }
}

/// Finds the device of a kernel's arrays. Throws "softmax: tensors live on cuda:0 and cpu", or if
/// an array is not contiguous and must be.
struct KernelCheck {
  const char* name;
  bool strided;
  Device device;
  bool found = false;

  void operator()(const Array& x);
  void operator()(const Arrays& list);
  /// Before the kernel runs on a GPU. Throws if there is none.
  void enter(bool exists) const;
};

/// Writes " (2, 3) float32" for each array among a kernel's arguments, and
/// " 148 tensors, the first (768,) float32" for a list.
struct DescribeArrays {
  TextStream out;

  void operator()(const Array& x);
  void operator()(const Arrays& list);
};

template <class F>
struct Kernel;
template <class Result, class... Args>
struct Kernel<Result(Args...)> {
  const char* name;
  Result (*cpu)(Args...);
  Result (**cuda)(Args...);
  bool strided;

  Result operator()(std::type_identity_t<Args>... args) const {
    KernelCheck check{name, strided, {}};
    (for_arrays(check, args), ...);
    if (check.device.is_cpu()) return cpu(args...);
    check.enter(*cuda != nullptr);
    try {
      return (*cuda)(args...);
    } catch (const DeviceError& error) {
      DescribeArrays given;
      (for_arrays(given, args), ...);
      fail<DeviceError>({error.what(), "; given", given.out.str()});
    }
  }
};

/// The CPU's version of a kernel that only a GPU has: it computes nothing.
template <class... Args>
bool nothing(Args...) {
  return false;
}

}  // namespace detail

#ifndef CUDA_TWIN  // cuda/twins.cpp defines it
#define CUDA_TWIN(name)
#endif
#define DECLARE_KERNEL(Result, name, cpu_kernel, strided, ...)                               \
  namespace cuda {                                                                           \
  Result name(__VA_ARGS__);                                                                  \
  }                                                                                          \
  namespace twin {                                                                           \
  inline std::add_pointer_t<Result(__VA_ARGS__)> name = nullptr;                             \
  }                                                                                          \
  namespace kernel {                                                                         \
  inline constexpr detail::Kernel<Result(__VA_ARGS__)> name{#name, &cpu_kernel, &twin::name, \
                                                            strided};                        \
  }
#define DECLARE_TWO(name, strided, ...) \
  namespace cpu {                       \
  void name(__VA_ARGS__);               \
  }                                     \
  DECLARE_KERNEL(void, name, cpu::name, strided, __VA_ARGS__)
// KERNEL: all its arrays must be contiguous. KERNEL_STRIDED: they may have any strides.
// KERNEL_CPU: as KERNEL, but it has no CUDA twin yet, and a call with tensors on a GPU says so.
#define KERNEL(name, ...) DECLARE_TWO(name, false, __VA_ARGS__) CUDA_TWIN(name)
#define KERNEL_STRIDED(name, ...) DECLARE_TWO(name, true, __VA_ARGS__) CUDA_TWIN(name)
#define KERNEL_CPU(name, ...) DECLARE_TWO(name, false, __VA_ARGS__)
// Only a GPU has it, and not for every argument: returns whether it has computed anything.
#define KERNEL_CUDA(name, ...) \
  DECLARE_KERNEL(bool, name, detail::nothing, true, __VA_ARGS__) CUDA_TWIN(name)

}  // namespace ink
