extern "C" __global__ void __launch_bounds__(8)
layer_norm(const f32 *X, f32 *out) {
  __shared__ __align__(16) f32 mean[1];
  __shared__ __align__(16) f32 spread[1];
  const i32 i = (i32)blockIdx.x;
  const i32 k_i = (i32)threadIdx.x;
  f32 mean_parts[1];
  f32 mean_part[1];
  mean_part[0] = 0.0f;
  for (i32 k_o = 0; k_o < 3; ++k_o) {
    if ((k_i + (k_o * 8)) < 21) {
      mean_part[0] = fmaf(X[((i * 21) + k_i) + (k_o * 8)], 0.04761905f, mean_part[0]);
    }
  }
  mean_parts[0] = mean_part[0];
  const f32 other = __shfl_down_sync(0xffu, mean_parts[0], 4, 32);
  if (k_i < 4) {
    const f32 left = mean_parts[0];
    mean_parts[0] = left + other;
  }
  const f32 other_1 = __shfl_down_sync(0xffu, mean_parts[0], 2, 32);
  if (k_i < 2) {
    const f32 left_1 = mean_parts[0];
    mean_parts[0] = left_1 + other_1;
  }
  const f32 other_2 = __shfl_down_sync(0xffu, mean_parts[0], 1, 32);
  if (k_i < 1) {
    const f32 left_2 = mean_parts[0];
    mean_parts[0] = left_2 + other_2;
  }
  if (k_i == 0) {
    mean[0] = mean_parts[0];
  }
  __syncthreads();
  f32 spread_parts[1];
  f32 spread_part[1];
  spread_part[0] = 0.0f;
  for (i32 q_o = 0; q_o < 3; ++q_o) {
    if ((k_i + (q_o * 8)) < 21) {
      const f32 t_1 = X[((i * 21) + k_i) + (q_o * 8)] - mean[0];
      spread_part[0] = fmaf(t_1, t_1, spread_part[0]);
    }
  }
  spread_parts[0] = spread_part[0];
  const f32 other_3 = __shfl_down_sync(0xffu, spread_parts[0], 4, 32);
  if (k_i < 4) {
    const f32 left_3 = spread_parts[0];
    spread_parts[0] = left_3 + other_3;
  }
  const f32 other_4 = __shfl_down_sync(0xffu, spread_parts[0], 2, 32);
  if (k_i < 2) {
    const f32 left_4 = spread_parts[0];
    spread_parts[0] = left_4 + other_4;
  }
  const f32 other_5 = __shfl_down_sync(0xffu, spread_parts[0], 1, 32);
  if (k_i < 1) {
    const f32 left_5 = spread_parts[0];
    spread_parts[0] = left_5 + other_5;
  }
  if (k_i == 0) {
    spread[0] = spread_parts[0];
  }
  __syncthreads();
  for (i32 j_o = 0; j_o < 3; ++j_o) {
    if ((k_i + (j_o * 8)) < 21) {
      out[((i * 21) + k_i) + (j_o * 8)] = (X[((i * 21) + k_i) + (j_o * 8)] - mean[0]) / sqrtf(((spread[0] * 0.04761905f) + 1e-05f));
    }
  }
}
