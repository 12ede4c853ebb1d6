extern "C" __global__ void __launch_bounds__(8)
prefix_sum(const i32 *X, i32 *out) {
  const i32 j_o = (i32)blockIdx.x;
  const i32 i = (i32)blockIdx.y;
  const i32 j_i = (i32)threadIdx.x;
  if (((j_o * 8) + j_i) < 37) {
    out[((j_o * 8) + (i * 37)) + j_i] = 0;
    for (i32 k = 0; k < 37; ++k) {
      out[((j_o * 8) + (i * 37)) + j_i] = (i32)((u32)out[((j_o * 8) + (i * 37)) + j_i] + (u32)((k <= (i32)((u32)(i32)((u32)j_o * (u32)8) + (u32)j_i)) ? X[(i * 37) + k] : 0));
    }
  }
}
