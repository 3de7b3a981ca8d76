// The package's entry `./ui`.
export {
  createUi,
  type Staff,
  type Tenant,
  type Ui,
  type UiOptions,
  type UiSettings,
  type Viewer,
} from "./create-ui.ts";
export { toNodeHandler } from "./node-handler.ts";
