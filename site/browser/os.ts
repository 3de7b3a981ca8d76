// Where a policy was declared: a browser has no name of its own.
export default { hostname: () => "browser" };
