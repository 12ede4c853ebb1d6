extern "C" __global__ void __launch_bounds__(5)
argmax(const f32 *X, i64 *best_0, f32 *best_1) {
  const i32 i = (i32)blockIdx.x;
  const i32 k_i = (i32)threadIdx.x;
  f32 best_parts1[1];
  i64 best_parts0[1];
  i64 best_part0[1];
  best_part0[0] = -1LL;
  f32 best_part1[1];
  best_part1[0] = __uint_as_float(0xff800000u);
  for (i32 k_o = 0; k_o < 5; ++k_o) {
    if ((k_i + (k_o * 5)) < 23) {
      const i64 old0 = best_part0[0];
      const f32 old1 = best_part1[0];
      const i64 new0 = (i64)((u64)(i64)k_i + (u64)(i64)((u64)(i64)k_o * (u64)5LL));
      const f32 new1 = X[((i * 23) + k_i) + (k_o * 5)];
      const bool t_1 = new1 != new1;
      const bool t_2 = old1 != old1;
      best_part0[0] = ((old0 == (-1LL)) || (((old1 < new1) || (t_1 && !t_2)) || (((old1 == new1) || (t_2 && t_1)) && (new0 < old0)))) ? new0 : old0;
      const bool t_3 = new1 != new1;
      const bool t_4 = old1 != old1;
      best_part1[0] = ((old0 == (-1LL)) || (((old1 < new1) || (t_3 && !t_4)) || (((old1 == new1) || (t_4 && t_3)) && (new0 < old0)))) ? new1 : old1;
    }
  }
  best_parts0[0] = best_part0[0];
  best_parts1[0] = best_part1[0];
  const i64 other = __shfl_down_sync(0x1fu, best_parts0[0], 4, 32);
  const f32 other_1 = __shfl_down_sync(0x1fu, best_parts1[0], 4, 32);
  if (k_i < 1) {
    const i64 old0_1 = best_parts0[0];
    const f32 old1_1 = best_parts1[0];
    const bool t_5 = other_1 != other_1;
    const bool t_6 = old1_1 != old1_1;
    best_parts0[0] = ((old0_1 == (-1LL)) || ((other != (-1LL)) && (((old1_1 < other_1) || (t_5 && !t_6)) || (((old1_1 == other_1) || (t_6 && t_5)) && (other < old0_1))))) ? other : old0_1;
    const bool t_7 = other_1 != other_1;
    const bool t_8 = old1_1 != old1_1;
    best_parts1[0] = ((old0_1 == (-1LL)) || ((other != (-1LL)) && (((old1_1 < other_1) || (t_7 && !t_8)) || (((old1_1 == other_1) || (t_8 && t_7)) && (other < old0_1))))) ? other_1 : old1_1;
  }
  const i64 other_2 = __shfl_down_sync(0x1fu, best_parts0[0], 2, 32);
  const f32 other_3 = __shfl_down_sync(0x1fu, best_parts1[0], 2, 32);
  if (k_i < 2) {
    const i64 old0_2 = best_parts0[0];
    const f32 old1_2 = best_parts1[0];
    const bool t_9 = other_3 != other_3;
    const bool t_10 = old1_2 != old1_2;
    best_parts0[0] = ((old0_2 == (-1LL)) || ((other_2 != (-1LL)) && (((old1_2 < other_3) || (t_9 && !t_10)) || (((old1_2 == other_3) || (t_10 && t_9)) && (other_2 < old0_2))))) ? other_2 : old0_2;
    const bool t_11 = other_3 != other_3;
    const bool t_12 = old1_2 != old1_2;
    best_parts1[0] = ((old0_2 == (-1LL)) || ((other_2 != (-1LL)) && (((old1_2 < other_3) || (t_11 && !t_12)) || (((old1_2 == other_3) || (t_12 && t_11)) && (other_2 < old0_2))))) ? other_3 : old1_2;
  }
  const i64 other_4 = __shfl_down_sync(0x1fu, best_parts0[0], 1, 32);
  const f32 other_5 = __shfl_down_sync(0x1fu, best_parts1[0], 1, 32);
  if (k_i < 1) {
    const i64 old0_3 = best_parts0[0];
    const f32 old1_3 = best_parts1[0];
    const bool t_13 = other_5 != other_5;
    const bool t_14 = old1_3 != old1_3;
    best_parts0[0] = ((old0_3 == (-1LL)) || ((other_4 != (-1LL)) && (((old1_3 < other_5) || (t_13 && !t_14)) || (((old1_3 == other_5) || (t_14 && t_13)) && (other_4 < old0_3))))) ? other_4 : old0_3;
    const bool t_15 = other_5 != other_5;
    const bool t_16 = old1_3 != old1_3;
    best_parts1[0] = ((old0_3 == (-1LL)) || ((other_4 != (-1LL)) && (((old1_3 < other_5) || (t_15 && !t_16)) || (((old1_3 == other_5) || (t_16 && t_15)) && (other_4 < old0_3))))) ? other_5 : old1_3;
  }
  if (k_i == 0) {
    best_0[i] = best_parts0[0];
    best_1[i] = best_parts1[0];
  }
}
