/** texts: `holdfast generate` and `holdfast serve`, the commands for texts of language models. */

export { addGenerate } from "./generate.js";
export { addServe } from "./serve.js";
