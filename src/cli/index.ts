/** cli: the `holdfast` command. It parses options and prints text; the layers below do the work. */

export { run } from "./command.js";
