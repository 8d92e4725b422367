"""The commit log of one tablespace: interface, record and frame formats, memory and file logs."""
