/** completion: `holdfast completion`, shell completion scripts generated from the commands themselves. */

export { addCompletion } from "./command.js";
