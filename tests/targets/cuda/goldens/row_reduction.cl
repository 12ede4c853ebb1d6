__kernel __attribute__((reqd_work_group_size(11, 1, 1)))
void row_reduction(__global const f32 *X, __global f32 *out) {
  __local f32 out_parts[11] __attribute__((aligned(16)));
  const i32 i = (i32)get_group_id(0);
  const i32 k = (i32)get_local_id(0);
  f32 out_part[1];
  out_part[0] = as_float(0xff800000u);
  out_part[0] = most_f32(out_part[0], X[(i * 11) + k]);
  out_parts[k] = out_part[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (k < 3) {
    const f32 left = out_parts[k];
    const f32 right = out_parts[k + 8];
    out_parts[k] = most_f32(left, right);
  }
  if (k < 4) {
    const f32 left_1 = out_parts[k];
    const f32 right_1 = out_parts[k + 4];
    out_parts[k] = most_f32(left_1, right_1);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (k < 2) {
    const f32 left_2 = out_parts[k];
    const f32 right_2 = out_parts[k + 2];
    out_parts[k] = most_f32(left_2, right_2);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (k < 1) {
    const f32 left_3 = out_parts[k];
    const f32 right_3 = out_parts[k + 1];
    out_parts[k] = most_f32(left_3, right_3);
  }
  if (k == 0) {
    out[i] = out_parts[0];
  }
}
