extern "C" __global__ void __launch_bounds__(11)
row_reduction(const f32 *X, f32 *out) {
  __shared__ __align__(16) f32 out_parts[11];
  const i32 i = (i32)blockIdx.x;
  const i32 k = (i32)threadIdx.x;
  f32 out_part[1];
  out_part[0] = __uint_as_float(0xff800000u);
  out_part[0] = most_f32(out_part[0], X[(i * 11) + k]);
  out_parts[k] = out_part[0];
  __syncthreads();
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
  __syncthreads();
  if (k < 2) {
    const f32 left_2 = out_parts[k];
    const f32 right_2 = out_parts[k + 2];
    out_parts[k] = most_f32(left_2, right_2);
  }
  __syncthreads();
  if (k < 1) {
    const f32 left_3 = out_parts[k];
    const f32 right_3 = out_parts[k + 1];
    out_parts[k] = most_f32(left_3, right_3);
  }
  if (k == 0) {
    out[i] = out_parts[0];
  }
}
