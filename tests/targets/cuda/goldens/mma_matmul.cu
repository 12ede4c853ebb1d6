extern "C" __global__ void __launch_bounds__(64)
mma_matmul(const u16 *A, const u16 *B, f32 *C) {
  __shared__ __align__(32) u16 A_shared[512];
  __shared__ __align__(32) u16 B_shared[256];
  const i32 j_o = (i32)blockIdx.x;
  const i32 i_o = (i32)blockIdx.y;
  const i32 i0_i1_i = (i32)threadIdx.x;
  const i32 i_i_o = (i32)threadIdx.y;
  f32 C_fragment[1][8];
  mma_fill(C_fragment[0], 0.0f);
  for (i32 k_o = 0; k_o < 2; ++k_o) {
    __syncthreads();
    for (i32 i0_i1_o_o = 0; i0_i1_o_o < 8; ++i0_i1_o_o) {
      A_shared[(i0_i1_i + (i_i_o * 32)) + (i0_i1_o_o * 64)] = A[(((((i0_i1_i / 16) * 32) + (i0_i1_i % 16)) + (i_i_o * 64)) + (k_o * 16)) + (i0_i1_o_o * 128)];
    }
    for (i32 i0_i1_o_o_1 = 0; i0_i1_o_o_1 < 4; ++i0_i1_o_o_1) {
      B_shared[(i0_i1_i + (i_i_o * 32)) + (i0_i1_o_o_1 * 64)] = B[((i0_i1_i + (i_i_o * 32)) + (k_o * 256)) + (i0_i1_o_o_1 * 64)];
    }
    __syncthreads();
    u32 A_shared_fragment[1][8];
    mma_load_a_row(A_shared_fragment[0], A_shared + (i_i_o * 256), 16);
    u32 B_shared_fragment[1][8];
    mma_load_b_row(B_shared_fragment[0], B_shared + 0, 16);
    mma_sync_row_row(C_fragment[0], A_shared_fragment[0], B_shared_fragment[0]);
  }
  mma_store(C + (i_i_o * 256), C_fragment[0], 16);
}
