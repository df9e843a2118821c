/** completion: `holdfast completion bash`, scripts by which shells complete the command, made of the command itself. */

export { addCompletion } from "./command.js";
