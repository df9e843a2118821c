/** swaUtils: averages of weights, with PyTorch's names. */

export { SWALR } from "./schedules/index.js";
