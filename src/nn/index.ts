/** nn: modules, layers, losses and initialisers, with PyTorch's names. */

export * as functional from "./functional.js";
export { type LoadResult, Module, type StateDict } from "./module.js";
export { type Draw, type Initializer, Parameter, type ParameterOptions } from "./parameter.js";
