extern "C" __global__ void __launch_bounds__(11)
row_reduction(const f32 *X, f32 *out) {
  const i32 i = (i32)blockIdx.x;
  const i32 k = (i32)threadIdx.x;
  f32 out_parts[1];
  f32 out_part[1];
  out_part[0] = __uint_as_float(0xff800000u);
  out_part[0] = most_f32(out_part[0], X[(i * 11) + k]);
  out_parts[0] = out_part[0];
  const f32 other = __shfl_down_sync(0x7ffu, out_parts[0], 8, 32);
  if (k < 3) {
    const f32 left = out_parts[0];
    out_parts[0] = most_f32(left, other);
  }
  const f32 other_1 = __shfl_down_sync(0x7ffu, out_parts[0], 4, 32);
  if (k < 4) {
    const f32 left_1 = out_parts[0];
    out_parts[0] = most_f32(left_1, other_1);
  }
  const f32 other_2 = __shfl_down_sync(0x7ffu, out_parts[0], 2, 32);
  if (k < 2) {
    const f32 left_2 = out_parts[0];
    out_parts[0] = most_f32(left_2, other_2);
  }
  const f32 other_3 = __shfl_down_sync(0x7ffu, out_parts[0], 1, 32);
  if (k < 1) {
    const f32 left_3 = out_parts[0];
    out_parts[0] = most_f32(left_3, other_3);
  }
  if (k == 0) {
    out[i] = out_parts[0];
  }
}
