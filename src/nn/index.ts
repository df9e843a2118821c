/** nn: modules, layers, losses and initialisers, with PyTorch's names. */

export type { Draw } from "../tensor/index.js";
export { Buffer, type BufferOptions } from "./buffer.js";
export * as functional from "./functional.js";
export * as init from "./init.js";
export * from "./layers/index.js";
export * as utils from "./model-functions.js";
export { Module } from "./module.js";
export type { ForwardHook, ForwardPreHook, FullBackwardHook } from "./module-hooks.js";
export type { Initializer } from "./module-tensor.js";
export { Parameter, type ParameterOptions } from "./parameter.js";
export type { LoadableState, LoadResult, StateDict, StoredElements } from "./state.js";
