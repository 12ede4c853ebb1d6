extern "C" __global__ void __launch_bounds__(8)
softmax(const f32 *X, f32 *out) {
  __shared__ __align__(16) f32 top[1];
  __shared__ __align__(16) f32 total[1];
  const i32 i = (i32)blockIdx.x;
  const i32 k_i = (i32)threadIdx.x;
  f32 top_parts[1];
  f32 top_part[1];
  top_part[0] = __uint_as_float(0xff800000u);
  for (i32 k_o = 0; k_o < 5; ++k_o) {
    if ((k_i + (k_o * 8)) < 37) {
      top_part[0] = most_f32(top_part[0], X[((i * 37) + k_i) + (k_o * 8)]);
    }
  }
  top_parts[0] = top_part[0];
  const f32 other = __shfl_down_sync(0xffu, top_parts[0], 4, 32);
  if (k_i < 4) {
    const f32 left = top_parts[0];
    top_parts[0] = most_f32(left, other);
  }
  const f32 other_1 = __shfl_down_sync(0xffu, top_parts[0], 2, 32);
  if (k_i < 2) {
    const f32 left_1 = top_parts[0];
    top_parts[0] = most_f32(left_1, other_1);
  }
  const f32 other_2 = __shfl_down_sync(0xffu, top_parts[0], 1, 32);
  if (k_i < 1) {
    const f32 left_2 = top_parts[0];
    top_parts[0] = most_f32(left_2, other_2);
  }
  if (k_i == 0) {
    top[0] = top_parts[0];
  }
  __syncthreads();
  f32 total_parts[1];
  f32 total_part[1];
  total_part[0] = 0.0f;
  for (i32 q_o = 0; q_o < 5; ++q_o) {
    if ((k_i + (q_o * 8)) < 37) {
      const f32 t_1 = X[((i * 37) + k_i) + (q_o * 8)] - top[0];
      const f32 t_2 = (t_1 < (-105.0f)) ? (-105.0f) : t_1;
      const f32 t_3 = (89.0f < t_2) ? 89.0f : t_2;
      const f32 t_4 = fmaf(t_3, 1.442695f, 1.2582912e+07f);
      const f32 t_5 = t_4 - 1.2582912e+07f;
      const f32 t_6 = fmaf(t_5, 1.9046542e-09f, fmaf(t_5, (-0.6931472f), t_3));
      const i32 t_7 = (i32)((u32)(i32)__float_as_uint(t_4) - (u32)1262485504);
      const i32 t_8 = shr_i32(t_7, 1);
      const f32 t_9 = (fmaf(fmaf(fmaf(fmaf(fmaf(fmaf(0.0013926177f, t_6, 0.008363174f), t_6, 0.041666556f), t_6, 0.16666578f), t_6, 0.5f), t_6, 1.0f), t_6, 1.0f) * __uint_as_float((u32)(shl_i32((i32)((u32)t_8 + (u32)127), 23)))) * __uint_as_float((u32)(shl_i32((i32)((u32)(i32)((u32)t_7 - (u32)t_8) + (u32)127), 23)));
      total_part[0] = total_part[0] + t_9;
    }
  }
  total_parts[0] = total_part[0];
  const f32 other_3 = __shfl_down_sync(0xffu, total_parts[0], 4, 32);
  if (k_i < 4) {
    const f32 left_3 = total_parts[0];
    total_parts[0] = left_3 + other_3;
  }
  const f32 other_4 = __shfl_down_sync(0xffu, total_parts[0], 2, 32);
  if (k_i < 2) {
    const f32 left_4 = total_parts[0];
    total_parts[0] = left_4 + other_4;
  }
  const f32 other_5 = __shfl_down_sync(0xffu, total_parts[0], 1, 32);
  if (k_i < 1) {
    const f32 left_5 = total_parts[0];
    total_parts[0] = left_5 + other_5;
  }
  if (k_i == 0) {
    total[0] = total_parts[0];
  }
  __syncthreads();
  for (i32 j_o = 0; j_o < 5; ++j_o) {
    if ((k_i + (j_o * 8)) < 37) {
      const f32 t_10 = X[((i * 37) + k_i) + (j_o * 8)] - top[0];
      const f32 t_11 = (t_10 < (-105.0f)) ? (-105.0f) : t_10;
      const f32 t_12 = (89.0f < t_11) ? 89.0f : t_11;
      const f32 t_13 = fmaf(t_12, 1.442695f, 1.2582912e+07f);
      const f32 t_14 = t_13 - 1.2582912e+07f;
      const f32 t_15 = fmaf(t_14, 1.9046542e-09f, fmaf(t_14, (-0.6931472f), t_12));
      const i32 t_16 = (i32)((u32)(i32)__float_as_uint(t_13) - (u32)1262485504);
      const i32 t_17 = shr_i32(t_16, 1);
      const f32 t_18 = (fmaf(fmaf(fmaf(fmaf(fmaf(fmaf(0.0013926177f, t_15, 0.008363174f), t_15, 0.041666556f), t_15, 0.16666578f), t_15, 0.5f), t_15, 1.0f), t_15, 1.0f) * __uint_as_float((u32)(shl_i32((i32)((u32)t_17 + (u32)127), 23)))) * __uint_as_float((u32)(shl_i32((i32)((u32)(i32)((u32)t_16 - (u32)t_17) + (u32)127), 23)));
      out[((i * 37) + k_i) + (j_o * 8)] = t_18 / total[0];
    }
  }
}
