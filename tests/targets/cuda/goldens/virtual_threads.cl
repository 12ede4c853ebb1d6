__kernel __attribute__((reqd_work_group_size(4, 1, 1)))
void virtual_threads(__global const f32 *X, __global f32 *out) {
  const i32 i_i_o = (i32)get_group_id(0);
  const i32 i_i_i = (i32)get_local_id(0);
  f32 B[26] __attribute__((aligned(16)));
  B[0] = X[(i_i_o * 4) + i_i_i] * 3.0f;
  B[25] = X[((i_i_o * 4) + i_i_i) + 12] * 3.0f;
  out[(i_i_o * 4) + i_i_i] = B[0] + 1.0f;
  out[((i_i_o * 4) + i_i_i) + 12] = B[25] + 1.0f;
}
