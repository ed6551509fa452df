"""Recomputing a version from its recorded schedule, and the first difference where there is one."""
