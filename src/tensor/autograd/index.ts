/** autograd: functions that differentiate, with PyTorch's names. */

export { backward, type GradOptions, grad } from "./grad.js";
