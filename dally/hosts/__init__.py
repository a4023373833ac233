"""Programs on machines: processes of this one, hosts over SSH, and networks of namespaces."""
