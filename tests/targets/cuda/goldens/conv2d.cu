extern "C" __global__ void __launch_bounds__(32)
conv2d(const f32 *X, const f32 *W, f32 *out) {
  __shared__ __align__(16) f32 W_shared[27];
  const i32 i_j_o = (i32)blockIdx.x;
  const i32 f = (i32)blockIdx.y;
  const i32 i0_i1_i2_i3_i = (i32)threadIdx.x;
  if (i0_i1_i2_i3_i < 27) {
    W_shared[i0_i1_i2_i3_i] = W[(f * 27) + i0_i1_i2_i3_i];
  }
  if (((i_j_o * 32) + i0_i1_i2_i3_i) < 81) {
    out[((i_j_o * 32) + (f * 81)) + i0_i1_i2_i3_i] = 0.0f;
  }
  for (i32 c = 0; c < 3; ++c) {
    for (i32 r = 0; r < 3; ++r) {
      for (i32 q = 0; q < 3; ++q) {
        __syncthreads();
        if (((i_j_o * 32) + i0_i1_i2_i3_i) < 81) {
          f32 t_1;
          if (((((1 <= (i32)((u32)((i32)((u32)(i32)((u32)i_j_o * (u32)32) + (u32)i0_i1_i2_i3_i) / 9) + (u32)r)) && ((i32)((u32)((i32)((u32)(i32)((u32)i_j_o * (u32)32) + (u32)i0_i1_i2_i3_i) / 9) + (u32)r) <= 9)) && (1 <= (i32)((u32)((i32)((u32)(i32)((u32)i_j_o * (u32)32) + (u32)i0_i1_i2_i3_i) % 9) + (u32)q))) && ((i32)((u32)((i32)((u32)(i32)((u32)i_j_o * (u32)32) + (u32)i0_i1_i2_i3_i) % 9) + (u32)q) <= 9))) {
            t_1 = X[(((((i_j_o * 32) + i0_i1_i2_i3_i) + (c * 81)) + (r * 9)) + q) - 10];
          }
          else {
            t_1 = 0.0f;
          }
          out[((i_j_o * 32) + (f * 81)) + i0_i1_i2_i3_i] = fmaf(t_1, W_shared[((c * 9) + (r * 3)) + q], out[((i_j_o * 32) + (f * 81)) + i0_i1_i2_i3_i]);
        }
      }
    }
  }
}
