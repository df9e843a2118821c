/** files: opens and reads regular files within limits, for every layer that reads what others may have written. */

export { isOwn } from "./ownership.js";
export {
  type OpenedFile,
  openRegularFile,
  readRegularFile,
  readSpan,
  readTail,
} from "./regular-files.js";
