extern "C" __global__ void __launch_bounds__(16)
async_matmul(const f32 *A, const f32 *B, f32 *C) {
  __shared__ __align__(16) f32 A_shared[32];
  __shared__ __align__(16) f32 B_shared[32];
  const i32 j_o = (i32)blockIdx.x;
  const i32 i_o = (i32)blockIdx.y;
  const i32 j_i = (i32)threadIdx.x;
  const i32 i_i = (i32)threadIdx.y;
  f32 C_local[1];
  if (((i_o * 4) + i_i) < 11) {
    copy_async4(A_shared + (j_i + (i_i * 4)), A + (((i_o * 48) + j_i) + (i_i * 12)));
  }
  if (((j_o * 4) + j_i) < 9) {
    copy_async4(B_shared + (j_i + (i_i * 4)), B + (((j_o * 4) + j_i) + (i_i * 9)));
  }
  if ((((i_o * 4) + i_i) < 11) && (((j_o * 4) + j_i) < 9)) {
    C_local[0] = 0.0f;
  }
  for (i32 k_o = 0; k_o < 3; ++k_o) {
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    if ((k_o + 1) < 3) {
      if (((i_o * 4) + i_i) < 11) {
        copy_async4(A_shared + ((j_i + (i_i * 4)) + (((k_o + 1) % 2) * 16)), A + (((((i_o * 48) + j_i) + (i_i * 12)) + (k_o * 4)) + 4));
      }
      if (((j_o * 4) + j_i) < 9) {
        copy_async4(B_shared + ((j_i + (i_i * 4)) + (((k_o + 1) % 2) * 16)), B + (((((j_o * 4) + j_i) + (i_i * 9)) + (k_o * 36)) + 36));
      }
    }
    if ((((i_o * 4) + i_i) < 11) && (((j_o * 4) + j_i) < 9)) {
      for (i32 k_i = 0; k_i < 4; ++k_i) {
        C_local[0] = fmaf(A_shared[((i_i * 4) + ((k_o % 2) * 16)) + k_i], B_shared[(j_i + ((k_o % 2) * 16)) + (k_i * 4)], C_local[0]);
      }
    }
  }
  if ((((i_o * 4) + i_i) < 11) && (((j_o * 4) + j_i) < 9)) {
    C[(((j_o * 4) + (i_o * 36)) + j_i) + (i_i * 9)] = C_local[0];
  }
}
