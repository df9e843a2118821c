/** strict: a wrapper that holds a driver's callers to CUDA's rules. */

export { strict } from "./strict.js";
