/** cli: the `holdfast` command. What it prints is for people; what it does, the layers below do. */

export { run } from "./command.js";
