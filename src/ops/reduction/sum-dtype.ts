/** The dtype of sums and products. */

import { type Dtype, dtypes } from "../../ir/index.js";

/** That of floats and of i64; i32 for booleans and smaller integers, in which kernels are faster. PyTorch's would be i64. */
export function sumDtype(dtype: Dtype): Dtype {
  return dtypes[dtype].kind === "float" || dtype === "i64" ? dtype : "i32";
}
