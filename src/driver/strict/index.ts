/** strict: a wrapper that enforces CUDA's rules. */

export { strict } from "./strict.js";
