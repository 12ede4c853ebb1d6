extern "C" __global__ void __launch_bounds__(8)
elementwise(const f32 *A, f32 *C) {
  const i32 i_o = (i32)blockIdx.x;
  const i32 i_i = (i32)threadIdx.x;
  if (((i_o * 8) + i_i) < 37) {
    C[(i_o * 8) + i_i] = (A[(i_o * 8) + i_i] * 2.0f) + 1.0f;
  }
}
