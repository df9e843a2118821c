/** serve: an HTTP server for the texts of a language model, with the requests and answers of OpenAI's API. */

export { type ModelServer, type ModelServerOptions, openModelServer } from "./model-server.js";
