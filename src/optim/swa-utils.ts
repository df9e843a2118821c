/** swaUtils: averages of weights, with PyTorch's names. */

export {
  AveragedModel,
  type AveragedModelOptions,
  type AveragingFunction,
  getEmaMultiAvgFn,
  getSwaMultiAvgFn,
} from "./averaged-model.js";
export { SWALR } from "./schedules/index.js";
export { updateBn } from "./update-bn.js";
