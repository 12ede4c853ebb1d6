extern "C" __global__ void __launch_bounds__(12)
two_extents(const f32 *X, f32 *out) {
  __shared__ __align__(16) f32 B[12];
  const i32 i = (i32)blockIdx.x;
  const i32 j = (i32)threadIdx.x;
  B[j] = X[(i * 12) + j] + 1.0f;
  __syncthreads();
  if (j < 5) {
    out[(i * 5) + j] = B[j] + B[(j * (-1)) + 11];
  }
}
