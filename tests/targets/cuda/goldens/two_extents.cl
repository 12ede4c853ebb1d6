__kernel __attribute__((reqd_work_group_size(12, 1, 1)))
void two_extents(__global const f32 *X, __global f32 *out) {
  __local f32 B[12] __attribute__((aligned(16)));
  const i32 i = (i32)get_group_id(0);
  const i32 j = (i32)get_local_id(0);
  B[j] = X[(i * 12) + j] + 1.0f;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (j < 5) {
    out[(i * 5) + j] = B[j] + B[(j * (-1)) + 11];
  }
}
