// What the kernels need of the language, in CUDA's words; metal.h says the same in Metal's.
#include <cuda/std/limits>

typedef unsigned int uint;
#define device
#define constant
#define inline __device__ inline
#define thread_position_in_grid                       \
  (uint3{blockIdx.x * blockDim.x + threadIdx.x,       \
         blockIdx.y * blockDim.y + threadIdx.y,       \
         blockIdx.z * blockDim.z + threadIdx.z})
