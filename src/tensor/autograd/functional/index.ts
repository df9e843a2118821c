/** autograd.functional: derivatives of functions, with PyTorch's names. */

export { hessian, type JacobianOptions, jacobian } from "./jacobian.js";
export type { FunctionalOptions, OneOrMore } from "./points.js";
export { hvp, jvp, vhp, vjp } from "./products.js";
