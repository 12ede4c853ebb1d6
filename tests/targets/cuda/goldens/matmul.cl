__kernel __attribute__((reqd_work_group_size(4, 4, 1)))
void matmul(__global const f32 *A, __global const f32 *B, __global f32 *C) {
  __local f32 A_shared[16] __attribute__((aligned(16)));
  __local f32 B_shared[16] __attribute__((aligned(16)));
  const i32 j_o = (i32)get_group_id(0);
  const i32 i_o = (i32)get_group_id(1);
  const i32 j_i = (i32)get_local_id(0);
  const i32 i_i = (i32)get_local_id(1);
  f32 C_local[1];
  if ((((i_o * 4) + i_i) < 11) && (((j_o * 4) + j_i) < 9)) {
    C_local[0] = 0.0f;
  }
  for (i32 k_o = 0; k_o < 2; ++k_o) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((((i_o * 4) + i_i) < 11) && ((j_i + (k_o * 4)) < 7)) {
      A_shared[j_i + (i_i * 4)] = A[(((i_o * 28) + j_i) + (i_i * 7)) + (k_o * 4)];
    }
    if (((i_i + (k_o * 4)) < 7) && (((j_o * 4) + j_i) < 9)) {
      B_shared[j_i + (i_i * 4)] = B[(((j_o * 4) + j_i) + (i_i * 9)) + (k_o * 36)];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if ((((i_o * 4) + i_i) < 11) && (((j_o * 4) + j_i) < 9)) {
      for (i32 k_i = 0; k_i < 4; ++k_i) {
        if (((k_o * 4) + k_i) < 7) {
          C_local[0] = fma(A_shared[(i_i * 4) + k_i], B_shared[j_i + (k_i * 4)], C_local[0]);
        }
      }
    }
  }
  if ((((i_o * 4) + i_i) < 11) && (((j_o * 4) + j_i) < 9)) {
    C[(((j_o * 4) + (i_o * 36)) + j_i) + (i_i * 9)] = C_local[0];
  }
}
