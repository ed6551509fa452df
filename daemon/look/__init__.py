"""What a person sees of the roles from outside: status, versions, curves. Reads only, imports no role."""
