import { SignUpForm } from "./form.tsx";

export default function Page() {
  return <SignUpForm />;
}
