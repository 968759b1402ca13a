// The rules and the words of the built-in language `fables`. data/README.md explains the notation.
#include "data/fables_grammar.h"

namespace ink {

const char* const kFablesRules = R"(
story: [open] [meet] [deal] [end]\n\n
open: [once] [girl=girls] the [shy] [beasts] [wanted] a [fine] [thing=things].
meet: 3 At the [grim] [place=places] [girl] met [boy=boys] the [beasts].
    | 2 [girl] met [boy=boys] the [beasts] at the [grim] [place=places].
    | 1 By the [grim] [place=places] lived [boy=boys] the [beasts].
deal: 3 [boy] [sold] [girl] the [thing] for [two] [fresh] [foods].
    | 1 "My [thing] for [two] [fresh] [foods]," [said] [boy].
    | 1 "Take my [thing], [girl]," [said] [boy].
end: [girl] [sang] the [place].

said: 2 said | cried | sighed | sang | laughed | growled | barked | roared
fresh: red | raw | ripe | sweet | sour | hot | cold | big | small | green | dry | round | good | old
     | new | soft | hard | fresh | juicy | tasty
once: 2 Once | 2 One day | In May | In June | At dawn | At noon
wanted: 3 wanted | needed | lost | missed | sought | craved | liked | loved
two: two | three | four | six | seven | nine | ten
sold: sold | made | found | built | gave | lent
sang: 4 took the [thing] to | 2 left the [thing] at | hid the [thing] at | kept the [thing] at
    | sang by | danced by | napped by | rested by | played by | laughed at | ate at | dreamed of
    | hummed at | worked at | sat by | slept at | cooked at | forgot | blessed | painted

girls: Ada | Bea | Cleo | Dot | Eve | Fay | Gia | Hua | Ida | Joy | Kim | Liv | Mia | Nia | Ona
     | Pia | Rae | Sue | Tia | Una | Val | Wyn | Yva | Zoe
boys: Abe | Ben | Cal | Dan | Eli | Finn | Gus | Hal | Ian | Jim | Ken | Leo | Max | Ned | Otto
    | Pip | Ray | Sam | Tom | Ugo | Vic | Wim | Yul | Zac
beasts: ant | ape | bat | bear | bee | boar | bug | calf | cat | colt | cow | crab | crow | deer
      | dog | dove | duck | eel | elk | fawn | fly | fox | frog | gnat | goat | gull | hare | hawk
      | hen | hog | jay | kid | lamb | lark | lion | lynx | mole | moth | mule | newt | owl | ox
      | pig | pony | pup | rat | seal | swan | toad | vole | wasp | wolf | worm | wren | yak
shy: shy | sly | old | young | tiny | proud | poor | rich | kind | merry | lazy | brave | bold
   | wise | silly | quick | noisy | jolly | fat | thin | neat | plump | mad | vain | rude | calm
   | dear | deaf | odd | idle
grim: old | new | big | low | far | wet | dry | red | grey | green | white | black | wide | cold
    | lost | lone | dim | calm | mossy | windy | sunny | foggy | quiet | misty | rocky | sandy
    | tall | high | deep | icy
places: ash | barn | cave | dune | elm | ford | gate | hill | inn | jetty | kiln | lake | mill
      | nest | oak | pond | quay | road | shed | tree | vale | well | yard
fine: red | blue | gold | pink | tin | big | new | round | long | soft | warm | shiny | plain
    | green | glass | fine | fancy | brass | clean | white | brown | lucky | heavy | huge | cheap
    | dusty | jade | steel | thick
things: ball | cup | drum | fan | gem | hat | jar | kite | lamp | map | net | pipe | quilt | ring
      | sled | top | vase | whip | yoke
foods: figs | plums | nuts | eggs | peas | buns | dates | limes | tarts | rolls | cakes | grapes
     | melons | herbs | yams | apples | onions | seeds | leeks
)";

}  // namespace ink
