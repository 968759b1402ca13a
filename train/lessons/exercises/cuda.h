// What the kernels of exercises 28 to 31 are written with. nvcc compiles them for a card: there
// global<T> is T*, and shared<T, N> an array. Any C++ compiler compiles them for the emulator,
// which sees each access.
#pragma once

#include <array>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef __CUDACC__
#include <cuda_runtime.h>

template <class T>
using global = T*;
template <class T, int N>
using shared = T[N];
#else
#include "cuda/emulator/accesses.h"
#endif

#include "train/lessons/exercises/exercise.h"

namespace ink {

#ifdef __CUDACC__

inline void check_cuda(cudaError_t error, const char* what) {
  INK_CHECK(error == cudaSuccess, what, ": ", cudaGetErrorString(error));
}

template <class... P>
CudaKernel cuda_kernel(void (*kernel)(P...)) {
  int cards = 0;
  const cudaError_t error = cudaGetDeviceCount(&cards);
  INK_CHECK(error == cudaSuccess && cards > 0, "--device cuda: there is no GPU here (",
            cudaGetErrorString(error),
            "). Your file was compiled for one. Leave --device cuda out: the emulator needs none");
  return {[kernel](const KernelLaunch& launch) -> KernelTrace {
            std::vector<KernelArgument> arguments = launch.arguments;
            std::vector<void*> on_card(arguments.size()), pointers;
            for (size_t i = 0; i < arguments.size(); ++i) {
              KernelArgument& a = arguments[i];
              if (a.data != nullptr) {
                check_cuda(cudaMalloc(&on_card[i], sizeof(float) * (a.size + 1)), "cudaMalloc");
                check_cuda(
                    cudaMemcpy(on_card[i], a.data, sizeof(float) * a.size, cudaMemcpyHostToDevice),
                    "cudaMemcpy");
              }
              pointers.push_back(a.data != nullptr ? static_cast<void*>(&on_card[i]) : &a.number);
            }
            check_cuda(cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                                        dim3(launch.blocks_x, launch.blocks_y),
                                        dim3(launch.threads), pointers.data(), 0, nullptr),
                       "launch");
            check_cuda(cudaDeviceSynchronize(), "kernel");
            for (size_t i = 0; i < arguments.size(); ++i) {
              if (arguments[i].data == nullptr) continue;
              check_cuda(cudaMemcpy(arguments[i].data, on_card[i],
                                    sizeof(float) * arguments[i].size, cudaMemcpyDeviceToHost),
                         "cudaMemcpy");
              check_cuda(cudaFree(on_card[i]), "cudaFree");
            }
            return {};
          },
          true};
}

#else

namespace detail {
template <class P>
P kernel_parameter(const KernelArgument& a, emulator::Watch& watch) {
  if constexpr (std::is_same_v<P, int>) {
    return a.number;
  } else {
    return P(watch.memory(a.name, a.data, a.size, sizeof(float), a.is_input));
  }
}

template <class... P, size_t... I>
std::tuple<P...> kernel_parameters(const std::vector<KernelArgument>& a, emulator::Watch& watch,
                                   std::index_sequence<I...>) {
  return {kernel_parameter<P>(a.at(I), watch)...};
}
}  // namespace detail

template <class... P>
CudaKernel cuda_kernel(void (*kernel)(P...)) {
  return {[kernel](const KernelLaunch& launch) -> KernelTrace {
    emulator::Watch watch;
    const auto parameters =
        detail::kernel_parameters<P...>(launch.arguments, watch, std::index_sequence_for<P...>());
    emulator::run_blocks(
        "kernel",
        dim3(static_cast<unsigned>(launch.blocks_x), static_cast<unsigned>(launch.blocks_y)),
        launch.threads, 0, [&](void*) { std::apply(kernel, parameters); });
    return {watch.faults(), watch.traffic()};
  }};
}

#endif

}  // namespace ink
