extern "C" __global__ void __launch_bounds__(4)
virtual_threads(const f32 *X, f32 *out) {
  const i32 i_i_o = (i32)blockIdx.x;
  const i32 i_i_i = (i32)threadIdx.x;
  f32 B[26] __align__(16);
  B[0] = X[(i_i_o * 4) + i_i_i] * 3.0f;
  B[25] = X[((i_i_o * 4) + i_i_i) + 12] * 3.0f;
  out[(i_i_o * 4) + i_i_i] = B[0] + 1.0f;
  out[((i_i_o * 4) + i_i_i) + 12] = B[25] + 1.0f;
}
