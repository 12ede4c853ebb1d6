extern "C" __global__ void __launch_bounds__(5)
dp4a_matmul(const i8 *A, const i8 *B, i32 *C) {
  const i32 i = (i32)blockIdx.x;
  const i32 j = (i32)threadIdx.x;
  i32 C_local[1];
  C_local[0] = 0;
  for (i32 k_o = 0; k_o < 3; ++k_o) {
    C_local[0] = dot4_s8(C_local[0], *(const u32 *)(A + ((i * 12) + (k_o * 4))), *(const u32 *)(B + ((j * 12) + (k_o * 4))));
  }
  C[(i * 5) + j] = C_local[0];
}
