__kernel __attribute__((reqd_work_group_size(4, 4, 1)))
void transpose(__global const f32 *A, __global f32 *C) {
  __local f32 A_shared[20] __attribute__((aligned(16)));
  const i32 j_o = (i32)get_group_id(0);
  const i32 i_o = (i32)get_group_id(1);
  const i32 i1 = (i32)get_local_id(0);
  const i32 i0 = (i32)get_local_id(1);
  if ((((j_o * 4) + i0) < 13) && (((i_o * 4) + i1) < 10)) {
    A_shared[i1 + (i0 * 5)] = A[(((j_o * 40) + (i_o * 4)) + i1) + (i0 * 10)];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if ((((i_o * 4) + i0) < 10) && (((j_o * 4) + i1) < 13)) {
    C[(((j_o * 4) + (i_o * 52)) + i1) + (i0 * 13)] = A_shared[(i1 * 5) + i0];
  }
}
