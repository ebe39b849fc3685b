
# Nodes, volumes and paths: the program is asked for them.
function __covey_values
    set -l words (commandline -opc)
    $words[1] completions fish -- $words[2..-1] (commandline -ct | string collect --allow-empty) 2>/dev/null
end
complete -c covey -a "(__covey_values)"
