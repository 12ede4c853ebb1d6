__kernel __attribute__((reqd_work_group_size(8, 1, 1)))
void elementwise(__global const f32 *A, __global f32 *C) {
  const i32 i_o = (i32)get_group_id(0);
  const i32 i_i = (i32)get_local_id(0);
  if (((i_o * 8) + i_i) < 37) {
    C[(i_o * 8) + i_i] = (A[(i_o * 8) + i_i] * 2.0f) + 1.0f;
  }
}
