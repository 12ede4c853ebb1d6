extern "C" __global__ void __launch_bounds__(16)
transpose(const f32 *A, f32 *C) {
  __shared__ __align__(16) f32 A_shared[20];
  const i32 j_o = (i32)blockIdx.x;
  const i32 i_o = (i32)blockIdx.y;
  const i32 i1 = (i32)threadIdx.x;
  const i32 i0 = (i32)threadIdx.y;
  if ((((j_o * 4) + i0) < 13) && (((i_o * 4) + i1) < 10)) {
    A_shared[i1 + (i0 * 5)] = A[(((j_o * 40) + (i_o * 4)) + i1) + (i0 * 10)];
  }
  __syncthreads();
  if ((((i_o * 4) + i0) < 10) && (((j_o * 4) + i1) < 13)) {
    C[(((j_o * 4) + (i_o * 52)) + i1) + (i0 * 13)] = A_shared[(i1 * 5) + i0];
  }
}
